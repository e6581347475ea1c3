// Command audit says of which modules programs are made, and under which licences. It reads what the Go linker wrote into the programs, and
// the licences next to the modules in the module cache.
package main

import (
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/licenseclassifier/v2/assets"
	"golang.org/x/mod/module"
)

// allowed licences ask for no more than to be named.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "Unlicense", "0BSD", "CC0-1.0", "Zlib"}

// chosen are modules that everybody may have under one of two licences, as their LICENSE says, with the file of the one that we take.
var chosen = map[string]string{
	"github.com/eclipse/paho.golang": "edl-v10", // the Eclipse Distribution License, which is BSD-3-Clause, and not the EPL
}

// own is the path before which modules are not looked at: they are ours.
const own = "github.com/capstan-io/capstan"

func main() {
	out := flag.String("out", "", "file to write the bill of materials to, as CycloneDX JSON")
	cache := flag.String("modcache", "", "the module cache, as go env GOMODCACHE says it")
	flag.Parse()
	if err := run(*out, *cache, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "audit:", err)
		os.Exit(1)
	}
}

// run writes the bill of the programs, and fails if a licence is missing or not allowed.
func run(out, cache string, programs []string) error {
	modules := map[string]*debug.Module{}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return fmt.Errorf("%s: %w: name programs that go build made", program, err)
		}
		for _, m := range info.Deps {
			if m.Path == own || strings.HasPrefix(m.Path, own+"/") {
				continue // one of this repository, also where a folder replaces it
			}
			if m.Replace != nil {
				m = m.Replace
			}
			modules[m.Path+"@"+m.Version] = m
		}
	}
	if len(modules) == 0 {
		return errors.New("no modules found: name programs that go build made")
	}
	components, problems, err := describe(modules, cache)
	if err != nil {
		return err
	}
	if out != "" {
		if err := write(out, components); err != nil {
			return err
		}
	}
	return problems
}

// describe makes components of modules, in their order, and says what is wrong with licences.
func describe(modules map[string]*debug.Module, cache string) (components []cyclonedx.Component, problems, err error) {
	classifier, err := assets.DefaultClassifier()
	if err != nil {
		return nil, nil, fmt.Errorf("load the texts of licences: %w", err)
	}
	var wrong []error
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		m := modules[name]
		component := cyclonedx.Component{
			Type: cyclonedx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, BOMRef: "pkg:golang/" + name, PackageURL: "pkg:golang/" + name,
		}
		texts, err := licenceFiles(m, cache)
		if err != nil {
			return nil, nil, err
		}
		found := map[string]bool{}
		for _, text := range texts {
			for _, match := range classifier.Match(text).Matches {
				if match.MatchType == "License" {
					found[match.Name] = true
				}
			}
		}
		licences := slices.Sorted(maps.Keys(found))
		if len(licences) == 0 {
			wrong = append(wrong, fmt.Errorf("%s: no licence was found: see what it says, and do without it if that is nothing", name))
		}
		var choices cyclonedx.Licenses
		for _, licence := range licences {
			choices = append(choices, cyclonedx.LicenseChoice{License: &cyclonedx.License{ID: licence}})
			if !slices.Contains(allowed, licence) {
				wrong = append(wrong, fmt.Errorf("%s: its licence %s is none of %s", name, licence, strings.Join(allowed, ", ")))
			}
		}
		component.Licenses = &choices
		components = append(components, component)
	}
	return components, errors.Join(wrong...), nil
}

var licenceName = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying)([-.].*)?$`)

// docsLicence is the extension of one that is for documentation, which is in no program.
const docsLicence = ".docs"

// licenceFiles are the texts at the top of a module.
func licenceFiles(m *debug.Module, cache string) (texts [][]byte, err error) {
	path, err := module.EscapePath(m.Path)
	if err != nil {
		return nil, err
	}
	version, err := module.EscapeVersion(m.Version)
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(cache, path+"@"+version)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("%w: run go mod download first", err)
	}
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !isLicence(m.Path, entry.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// isLicence tells whether a file of a module is the licence of what is linked.
func isLicence(path, file string) bool {
	if choice, ok := chosen[path]; ok {
		return file == choice
	}
	return licenceName.MatchString(file) && filepath.Ext(file) != docsLicence
}

func write(file string, components []cyclonedx.Component) error {
	bill := cyclonedx.NewBOM()
	bill.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{Type: cyclonedx.ComponentTypeApplication, Name: own, BOMRef: own}}
	bill.Components = &components
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	err = cyclonedx.NewBOMEncoder(f, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bill)
	return errors.Join(err, f.Close())
}
