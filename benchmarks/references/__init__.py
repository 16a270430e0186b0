"""Shows published results, and compares a result with the nearest one."""
