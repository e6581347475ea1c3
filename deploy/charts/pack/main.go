// Command pack writes a Helm repository with the charts.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/capstan-io/capstan/deploy/charts/repository"
)

func main() {
	source := flag.String("charts", "deploy/charts", "folder with the charts")
	out := flag.String("out", "dist/charts", "folder of the repository")
	version := flag.String("version", "", "version of the charts and of the images in them, such as v1.2.3; without it, that of Chart.yaml")
	url := flag.String("url", "", "URL of the repository, if its index is going to be somewhere else")
	flag.Parse()
	if err := repository.Write(*source, *out, *version, *url); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
