"""The pytest plugin: tests replay a recording to live agents and compare what they say.

`plugin` is the entry point, which imports pytest and the standard library only. Everything else is imported when a test
uses the fixture `replay`. Dependencies within the package, from the top:

    plugin
    fixture                         the object that a test calls
    new_recording                   a first recording of live agents
    playing, loops                  a replay with live agents; event loops of plain tests
    failure_text, difference_text   what a failure shows
    taking_over                     what the tests of a run accept, together
    accepting, alignment            edits of a recording
    event_lines, recording_file     recordings as JSON Lines
    file_changes                    what a run has changed, and what no test uses
    marks, recording_paths          the mark of a test, and the place of its recording
    agent_state                     what a live agent had said and heard
"""
