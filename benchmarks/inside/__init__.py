"""What is loaded by path inside a framework's environment: standard library only, no package of ours."""
