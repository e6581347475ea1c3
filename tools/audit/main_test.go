package main

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

const mit = `MIT License

Copyright (c) 2026 Somebody

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files (the
"Software"), to deal in the Software without restriction, including without limitation the rights to use, copy, modify, merge, publish,
distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so, subject to
the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF
MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR
ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE
SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
`

// "a licence check in CI", "SBOM"
func TestLicences(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	add := func(path, file, text string) *debug.Module {
		folder := filepath.Join(cache, path+"@v1.0.0")
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return &debug.Module{Path: path, Version: "v1.0.0"}
	}
	good := map[string]*debug.Module{"example.com/good@v1.0.0": add("example.com/good", "LICENSE.md", mit)}
	components, problems, err := describe(good, cache)
	if err != nil || problems != nil {
		t.Fatal(err, problems)
	}
	if len(components) != 1 || components[0].PackageURL != "pkg:golang/example.com/good@v1.0.0" ||
		(*components[0].Licenses)[0].License.ID != "MIT" {
		t.Errorf("components %+v", components)
	}
	for name, m := range map[string]*debug.Module{
		"none":     add("example.com/none", "README.md", mit),
		"unknown":  add("example.com/unknown", "LICENSE", "All rights are with somebody."),
		"for docs": add("example.com/docs", "LICENSE.docs", mit),
	} {
		if _, problems, err := describe(map[string]*debug.Module{m.Path + "@v1.0.0": m}, cache); err != nil || problems == nil ||
			!strings.Contains(problems.Error(), m.Path) {
			t.Errorf("%s: %v, %v", name, problems, err)
		}
	}
	// Of two licences, the one that we take counts, whatever the other says.
	both := add("github.com/eclipse/paho.golang", "LICENSE", "All rights are with somebody.")
	add(both.Path, "edl-v10", mit)
	components, problems, err = describe(map[string]*debug.Module{both.Path + "@v1.0.0": both}, cache)
	if err != nil || problems != nil || (*components[0].Licenses)[0].License.ID != "MIT" {
		t.Errorf("components %+v, %v, %v", components, problems, err)
	}
	if err := run("", cache, nil); err == nil {
		t.Error("no program is no mistake")
	}
}
