package heap

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// freeProgram unmaps the pages of the program itself that are only read: code, and constants. A start needs several times as
// many of them as what follows, and the kernel keeps them mapped until memory is short. What the process needs it maps again, in
// microseconds, out of the page cache; the rest is the first that the kernel drops when it needs room.
func freeProgram() {
	executable, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer func() { _ = maps.Close() }()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		if start, length, found := constantPages(lines.Text(), executable); found {
			// Advice that is not taken changes nothing. Cold pages are reclaimed first; those of other processes, too, stay as they are.
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, start, length, unix.MADV_COLD)
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, start, length, unix.MADV_DONTNEED)
		}
	}
}

// constantPages reads a line of /proc/self/maps: it finds a mapping of the file that nobody can write to, for whose pages the
// file is as good as memory.
func constantPages(line, file string) (start, length uintptr, found bool) {
	// Such as "00400000-03979000 r-xp 00000000 08:01 4242    /usr/bin/capstan-agent".
	fields := strings.Fields(line)
	if len(fields) < 6 || strings.Join(fields[5:], " ") != file || strings.Contains(fields[1], "w") {
		return 0, 0, false
	}
	from, to, _ := strings.Cut(fields[0], "-")
	begin, beginErr := strconv.ParseUint(from, 16, 64)
	end, endErr := strconv.ParseUint(to, 16, 64)
	if beginErr != nil || endErr != nil || end <= begin {
		return 0, 0, false
	}
	return uintptr(begin), uintptr(end - begin), true
}
