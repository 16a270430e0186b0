"""The output of commands, and the places of Stepmark's files. Every other folder of launch may import this one."""
