package tcp

import "syscall"

// optionUserTimeout is TCP_USER_TIMEOUT, in milliseconds, which package syscall has no name for.
const optionUserTimeout = 0x12

// setUserTimeout ends a connection whose data is not acknowledged for userTimeout. Where the kernel refuses that, the connection lasts
// longer.
func setUserTimeout(raw syscall.RawConn) {
	_ = raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, optionUserTimeout, int(userTimeout.Milliseconds()))
	})
}
