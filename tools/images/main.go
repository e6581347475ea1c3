// Command images writes the container images of a release, and pushes them to a registry. It takes no container engine, and the same
// programs make the same images, bit for bit: nothing in them says when or where they were written.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case "build":
			return runBuild(args[1:])
		case "push":
			return runPush(ctx, args[1:])
		}
	}
	return errors.New("say what to do: build or push")
}

func runBuild(args []string) error {
	var r release
	flags := flag.NewFlagSet("build", flag.ContinueOnError)
	flags.StringVar(&r.Bin, "bin", "", "folder with a folder of programs for each architecture")
	flags.StringVar(&r.Registry, "registry", "ghcr.io/capstan-io", "where the images are going to be, for the names in archives")
	flags.StringVar(&r.Version, "version", "", "version of the programs, which is the tag")
	flags.StringVar(&r.Revision, "revision", "", "commit of the programs")
	out := flags.String("out", "", "folder to write to")
	architectures := flags.String("archs", "amd64,arm64", "architectures, separated by commas or spaces")
	created := flags.Int64("created", 0, "time of the commit, in seconds since 1970")
	if err := flags.Parse(args); err != nil {
		return err
	}
	r.Created, r.Architectures = time.Unix(*created, 0), split(*architectures)
	switch {
	case r.Bin == "" || *out == "" || r.Version == "" || r.Revision == "":
		return errors.New("-bin, -out, -version and -revision have to be set")
	case len(r.Architectures) == 0:
		return errors.New("-archs names no architecture; name some, such as amd64,arm64")
	}
	all, err := images()
	if err != nil {
		return err
	}
	return r.write(all, *out, os.Stdout)
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

func runPush(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("push", flag.ContinueOnError)
	from := flags.String("from", "", "folder that build has written to")
	var p publication
	flags.StringVar(&p.Registry, "registry", "", "registry, with the first part of the path, such as ghcr.io/capstan-io")
	flags.StringVar(&p.Tag, "tag", "", "tag of the images")
	flags.StringVar(&p.Version, "version", "", "version that the images have to be of, unless that is the tag")
	flags.StringVar(&p.Revision, "revision", "", "commit that the images have to be of")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *from == "" || p.Registry == "" || p.Tag == "" || p.Version == "" || p.Revision == "" {
		return errors.New("-from, -registry, -tag, -version and -revision have to be set: run `make push REGISTRY=ghcr.io/capstan-io` " +
			"in a clone of the repository, with the registry of yours")
	}
	return p.push(ctx, *from, os.Stdout)
}
