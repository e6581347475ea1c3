//go:build !linux

package tcp

import "syscall"

// setUserTimeout does nothing where there is no such option.
func setUserTimeout(syscall.RawConn) {}
