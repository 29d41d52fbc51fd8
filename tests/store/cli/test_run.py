"""`messager run` records a program, and what it starts, without a change to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from messager.start import hook
from messager_store import EventLog
from tests.support.command_line import Run, one_line

PROGRAM = """
import asyncio, multiprocessing, sys
from messager import MemoryBroker, Messager

async def main():
    async with Messager(MemoryBroker(), "exp-7") as messager:
        await messager.send_message("c", {"n": 0}, "driver", "worker")

def work(n):
    from messager.transport import of_process
    of_process().endpoint(n).sent("c", {"n": n}, n, "driver")

if __name__ == "__main__":
    asyncio.run(main())
    for how in ("spawn", "fork"):
        process = multiprocessing.get_context(how).Process(target=work, args=(how,))
        process.start()
        process.join()
    print("done", *sys.argv[1:])
    sys.exit(4)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "society.py"
    path.write_text(PROGRAM)
    return path


async def senders(store: Path, exp_id: str) -> set[str]:
    async with EventLog.open(str(store), create=False) as log:
        return {str(event.from_id) async for event in log.read(exp_id, kinds=["sent"])}


async def test_a_program_and_its_processes_are_recorded_into_the_experiment_of_its_messagers_or_a_given_one(
    run: Run, tmp_path: Path, program: Path
) -> None:
    done = run("run", "--", sys.executable, program, "--exp", "of the program")
    assert (done.returncode, done.stdout) == (4, "done --exp of the program\n")
    assert "recorded 3 messages of exp-7 in 3 processes" in done.stderr
    assert await senders(tmp_path / "messager.db", "exp-7") == {"driver", "spawn", "fork"}
    done = run("run", "--exp", "e8", "--", sys.executable, program)
    assert "recorded 3 messages of e8 in 3 processes" in done.stderr


def test_a_program_of_which_nothing_was_recorded_is_told_so_in_one_line(run: Run) -> None:
    done = run("run", "--", sys.executable, "-c", "raise SystemExit(3)")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "nothing was recorded: the program ended with exit code 3 before it said anything\n"
    done = run("run", "--", sys.executable, "-c", "")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("nothing was recorded: ")
    assert "docs/transports.md" in done.stderr
    one_line(run("run", "--", "no-such-program"), 2, "there is no program no-such-program", "give a program")
    one_line(run("run", "--exp", "e1"), 2, "PROGRAM")


def test_the_sitecustomize_of_the_environment_runs_too(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os; 'MESSAGER_RUN' in os.environ and print('its own')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = run("run", "--", sys.executable, "-c", "import sitecustomize; print(sitecustomize.__file__)")
    assert done.stdout == f"its own\n{tmp_path}/sitecustomize.py\n"


def test_ctrl_c_and_termination_reach_the_program(tmp_path: Path) -> None:
    program = (
        "import signal, time; signal.signal(signal.SIGTERM, lambda *at: exit(5)); print(1, flush=True); time.sleep(60)"
    )
    command = [Path(sys.executable).parent / "messager", "run", "--", sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as running:
        assert running.stdout is not None and running.stdout.readline() == "1\n"
        running.send_signal(signal.SIGTERM)
        _, err = running.communicate(timeout=60)
    assert running.returncode == 5 and "nothing was recorded" in err


def test_the_hook_reaches_programs_that_ignore_pythonpath_and_goes_with_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "messager-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: messager\nVersion: 1\n")
    (info / "RECORD").write_text("messager-1.dist-info/METADATA,,\nmessager-1.dist-info/RECORD,,\n")
    monkeypatch.setattr(hook, "hook_file", lambda: tmp_path / hook.NAME)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    path = hook.install()
    assert hook.install() == path
    assert (info / "RECORD").read_text().splitlines()[-1] == f"{hook.NAME},,"
    assert run_isolated(tmp_path, MESSAGER_RUN="run-1") == "True"
    assert run_isolated(tmp_path) == "False"
    assert (hook.remove(), hook.remove()) == (True, False)
    assert hook.NAME not in (info / "RECORD").read_text() and not path.exists()


def run_isolated(folder: Path, **given: str) -> str:
    """Return whether the start of a run was imported, in a program that processes the `.pth` files of `folder`."""
    program = f"import site, sys; site.addsitedir({str(folder)!r}); print('messager.start' in sys.modules)"
    environment = {**{name: value for name, value in os.environ.items() if name != "MESSAGER_RUN"}, **given}
    done = subprocess.run([sys.executable, "-I", "-c", program], env=environment, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout.strip()
