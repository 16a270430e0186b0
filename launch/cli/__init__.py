"""How commands start: flags, help, subcommands, completion, and the exit code."""
