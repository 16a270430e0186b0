"""The start and end of every command: flags, help, subcommands, completion, and the exit code."""
