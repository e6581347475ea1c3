package main

import (
	"strings"
	"testing"
)

func TestList(t *testing.T) {
	const events = `
{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestGood"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"good\n"}
{"Action":"pass","Package":"p","Test":"TestGood"}
{"Action":"run","Package":"p","Test":"TestOnce"}
{"Action":"output","Package":"p","Test":"TestOnce","Output":"first\n"}
{"Action":"fail","Package":"p","Test":"TestOnce"}
{"Action":"run","Package":"p","Test":"TestBroken"}
{"Action":"output","Package":"p","Test":"TestBroken","Output":"broken\n"}
{"Action":"fail","Package":"p","Test":"TestBroken"}
{"Action":"fail","Package":"p"}
{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestOnce"}
{"Action":"output","Package":"p","Test":"TestOnce","Output":"second\n"}
{"Action":"pass","Package":"p","Test":"TestOnce"}
{"Action":"run","Package":"p","Test":"TestBroken"}
{"Action":"fail","Package":"p","Test":"TestBroken"}
{"Action":"fail","Package":"p"}
`
	tests, err := read(strings.NewReader(events))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	list(tests, &out)
	if want := "FLAKY p TestOnce\nfirst\n"; out.String() != want {
		t.Errorf("%q, expected %q", out.String(), want)
	}
}

func TestListFileWithoutRuns(t *testing.T) {
	var out strings.Builder
	if err := listFile(t.TempDir()+"/missing", &out); err != nil || out.Len() > 0 {
		t.Errorf("%v, %q", err, out.String())
	}
}
