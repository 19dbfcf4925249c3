package manifest

import "syscall"

// makePipe makes a named pipe, which a careless reader would wait on for ever.
func makePipe(path string) error { return syscall.Mkfifo(path, 0o600) }
