package gcpacer

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
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

func TestRelocated(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		content []byte
		want    bool
	}{
		"static":               {program(t, elf.PT_LOAD, elf.PT_NOTE), false},
		"position-independent": {program(t, elf.PT_LOAD, elf.PT_DYNAMIC), true},
		"no program":           {[]byte("#!/bin/sh"), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "program")
			if err := os.WriteFile(file, test.content, 0o600); err != nil {
				t.Fatal(err)
			}
			if got := relocated(file); got != test.want {
				t.Errorf("relocated: %t, want %t", got, test.want)
			}
		})
	}
}

// program is the header of an executable file with these segments, all of them empty.
func program(t *testing.T, segments ...elf.ProgType) []byte {
	t.Helper()
	header := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Phnum: uint16(len(segments))}
	header.Ehsize, header.Phentsize = uint16(binary.Size(header)), uint16(binary.Size(elf.Prog64{}))
	header.Phoff = uint64(header.Ehsize)
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS], header.Ident[elf.EI_DATA], header.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB),
		byte(elf.EV_CURRENT)
	var content bytes.Buffer
	parts := []any{header}
	for _, segment := range segments {
		parts = append(parts, elf.Prog64{Type: uint32(segment)})
	}
	for _, part := range parts {
		if err := binary.Write(&content, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return content.Bytes()
}

// Where the program is relocated, to free nothing is what keeps it alive.
func TestFreeProgram(t *testing.T) {
	before := mappedFiles(t)
	freeProgram()
	if after := mappedFiles(t); after >= before && !relocated(self) {
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
