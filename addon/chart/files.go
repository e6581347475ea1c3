package chart

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"helm.sh/helm/v4/pkg/chart/loader/archive"
	"helm.sh/helm/v4/pkg/ignore"
)

// read returns the files of a chart, without those that its .helmignore excludes.
func read(chart fs.FS) (all []*archive.BufferedFile, err error) {
	rules, err := ignored(chart)
	if err != nil {
		return nil, err
	}
	err = fs.WalkDir(chart, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		switch skip := rules.Ignore(name, info); {
		case skip && entry.IsDir():
			return fs.SkipDir
		case skip || entry.IsDir():
			return nil
		}
		content, err := fs.ReadFile(chart, name)
		all = append(all, &archive.BufferedFile{Name: name, ModTime: info.ModTime(), Data: content})
		return err
	})
	return all, err
}

func ignored(chart fs.FS) (*ignore.Rules, error) {
	text, err := fs.ReadFile(chart, ignore.HelmIgnore)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	rules, err := ignore.Parse(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ignore.HelmIgnore, err)
	}
	rules.AddDefaults()
	return rules, nil
}

var (
	comments = regexp.MustCompile(`(?s)\{\{-?\s*/\*.*?\*/\s*-?\}\}`)
	defines  = regexp.MustCompile("\\{\\{-?\\s*(?:define|block)\\s+[\"`]([^\"`]+)[\"`]")
	includes = regexp.MustCompile("\\b(?:include|template)\\s+[\"`]([^\"`]+)[\"`]")
)

// checkEmbedded fails if an embedded chart lacks templates that others include, because it was embedded without the files whose names
// start with an underscore.
func (c *Chart) checkEmbedded(files fs.FS) error {
	if _, embedded := files.(embed.FS); !embedded {
		return nil
	}
	defined := map[string]bool{}
	for _, file := range c.files {
		if strings.HasPrefix(path.Base(file.Name), "_") || strings.HasSuffix(file.Name, ".tgz") {
			return nil
		}
		for _, match := range defines.FindAllSubmatch(file.Data, -1) {
			defined[string(match[1])] = true
		}
	}
	for _, file := range c.files {
		if !strings.Contains("/"+file.Name, "/templates/") {
			continue
		}
		for _, match := range includes.FindAllSubmatch(comments.ReplaceAll(file.Data, nil), -1) {
			if name := string(match[1]); !defined[name] {
				return fmt.Errorf("%s includes %q, which no file defines: embed the chart with //go:embed all:DIR, or Go leaves out files such as "+
					"templates/_helpers.tpl", file.Name, name)
			}
		}
	}
	return nil
}
