"""Other systems made to talk through this Messager: one module a system. None of them is imported unless asked for."""
