"""The command line: one file a verb, which parses, calls and prints.

`frame` builds the command from the verbs and turns errors into exit codes, `options` holds what verbs share, `screen`
prints. A verb's module has `answer`, the function that Typer reads, and `EXAMPLES`. Only the module of the verb that is
called gets imported, and it imports what is heavy (numpy, rich) inside `answer`, so that help and completion are quick.
"""
