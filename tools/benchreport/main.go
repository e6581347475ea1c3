// Command benchreport writes docs/benchmarks from the results of measurements: a page with tables, and curves over the size of the fleet
// as SVG. It writes what there are results for, so that one size can be measured again alone.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	results := flag.String("results", "", "folder with the results, which the measurements write as JSON")
	out := flag.String("out", "", "existing folder for the page and its curves")
	flag.Parse()
	if err := run(*results, *out); err != nil {
		fmt.Fprintln(os.Stderr, "benchreport:", err)
		os.Exit(1)
	}
}

func run(results, out string) error {
	all, err := read(results)
	if err != nil {
		return err
	}
	if err := removeCurves(out); err != nil {
		return err
	}
	for _, s := range sections {
		for _, c := range s.curves {
			if err := c.write(out, all); err != nil {
				return fmt.Errorf("draw %s: %w", c.file, err)
			}
		}
	}
	return os.WriteFile(filepath.Join(out, "README.md"), []byte(page(all)), 0o644)
}

// removeCurves removes those of an earlier run, so that none stays that nothing shows.
func removeCurves(folder string) error {
	curves, err := filepath.Glob(filepath.Join(folder, "*.svg"))
	if err != nil {
		return err
	}
	var errs []error
	for _, curve := range curves {
		errs = append(errs, os.Remove(curve))
	}
	return errors.Join(errs...)
}
