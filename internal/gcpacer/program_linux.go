package gcpacer

import (
	"bufio"
	"debug/elf"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// self is the program of this process, also when its file has been replaced since.
const self = "/proc/self/exe"

// freeProgram unmaps the pages of the program itself that are only read: code, and constants. A start needs several times as
// many of them as what follows, and the kernel keeps them mapped until memory is short. What the process needs it maps again, in
// microseconds, out of the page cache; the rest is the first that the kernel drops when it needs room.
func freeProgram() {
	executable, err := os.Readlink(self)
	if err != nil || relocated(self) {
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

// relocated tells whether addresses are written into a program when it is loaded, as into one that is position-independent or
// dynamically linked. Its read-only pages are then not as the file has them, and must not be read from there again. Nor may they
// if nobody knows.
func relocated(program string) bool {
	file, err := elf.Open(program)
	if err != nil {
		return true
	}
	defer func() { _ = file.Close() }()
	return slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_DYNAMIC })
}

// constantPages reads a line of /proc/self/maps: it finds a mapping of the file that nobody can write to. Unless the program is
// relocated, the file is as good as memory for its pages.
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
