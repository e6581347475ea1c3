package heap

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

func TestConstantPages(t *testing.T) {
	t.Parallel()
	const file = "/opt/a b/agent"
	for line, want := range map[string][2]uintptr{
		"00400000-00403000 r-xp 00000000 08:01 42    /opt/a b/agent":            {0x400000, 0x3000},
		"00500000-00501000 r--p 00100000 08:01 42    /opt/a b/agent":            {0x500000, 0x1000},
		"00600000-00601000 rw-p 00200000 08:01 42    /opt/a b/agent":            {},
		"00400000-00403000 r-xp 00000000 08:01 43    /usr/lib/libc.so":          {},
		"7f0000000000-7f0000001000 rw-p 00000000 00:00 0 ":                      {},
		"7ffd00000000-7ffd00001000 r-xp 00000000 00:00 0                [vdso]": {},
		"": {},
	} {
		start, length, found := constantPages(line, file)
		if start != want[0] || length != want[1] || found != (want[1] != 0) {
			t.Errorf("%q: got %x, %x, %t; want %x", line, start, length, found, want)
		}
	}
}

func TestFreeProgram(t *testing.T) {
	before := mappedFiles(t)
	freeProgram()
	if after := mappedFiles(t); after >= before {
		t.Errorf("%d kB of files are mapped, %d before", after, before)
	}
}

// mappedFiles returns how much of the files that the process maps is in memory, in kB.
func mappedFiles(t *testing.T) int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`RssFile:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		t.Fatalf("no RssFile in %s", status)
	}
	kB, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kB
}
