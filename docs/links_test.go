package docs

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var (
	codeSpan = regexp.MustCompile("`[^`]*`")
	link     = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading  = regexp.MustCompile(`^#{1,6} +(.+?) *$`)
	// shown is what Markdown renders of a link.
	shown = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// page is a page of the documentation: the anchors of its headings and the targets of its links.
type page struct {
	anchors map[string]bool
	links   []string
}

// TestLinks follows the relative links of all pages: the files exist, and so do the headings that they name.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages := readPages(t)
	for from, p := range pages {
		for _, target := range p.links {
			file, anchor, _ := strings.Cut(target, "#")
			to := from
			if file != "" {
				to = path.Join(path.Dir(from), file)
			}
			if _, err := os.Stat(filepath.Join("..", filepath.FromSlash(to))); err != nil {
				t.Errorf("%s: the link %s leads nowhere: %v", from, target, err)
				continue
			}
			if anchor == "" {
				continue
			}
			if at, isPage := pages[to]; !isPage || !at.anchors[anchor] {
				t.Errorf("%s: the link %s names a heading that %s does not have", from, target, to)
			}
		}
	}
}

// TestIndex sees to it that the index leads to every page of the documentation, and the README to the index.
func TestIndex(t *testing.T) {
	t.Parallel()
	pages := readPages(t)
	linked := map[string]bool{"docs/README.md": true}
	for _, target := range pages["docs/README.md"].links {
		file, _, _ := strings.Cut(target, "#")
		linked[path.Join("docs", file)] = true
	}
	for name := range pages {
		if strings.HasPrefix(name, "docs/") && !linked[name] {
			t.Errorf("docs/README.md has no link to %s", name)
		}
	}
	if !strings.Contains(strings.Join(pages["README.md"].links, " "), "docs/README.md") {
		t.Error("README.md has no link to docs/README.md")
	}
}

// readPages reads all pages in Markdown, by their paths from the root of the repository.
func readPages(t *testing.T) map[string]page {
	t.Helper()
	pages := map[string]page{}
	err := filepath.WalkDir("..", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "testdata" || name != ".." && strings.HasPrefix(entry.Name(), ".")):
			return filepath.SkipDir
		case entry.IsDir() || filepath.Ext(name) != ".md":
			return nil
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		pages[strings.TrimPrefix(filepath.ToSlash(name), "../")] = parsePage(string(content))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// parsePage reads a page but for what it shows as code.
func parsePage(content string) page {
	p := page{anchors: map[string]bool{}}
	inCode := false
	for line := range strings.SplitSeq(content, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inCode = !inCode
		}
		if inCode {
			continue
		}
		if match := heading.FindStringSubmatch(line); match != nil {
			p.anchors[anchorOf(match[1])] = true
		}
		for _, match := range link.FindAllStringSubmatch(codeSpan.ReplaceAllString(line, ""), -1) {
			if target := match[1]; !strings.Contains(target, "://") && !strings.HasPrefix(target, "mailto:") {
				p.links = append(p.links, target)
			}
		}
	}
	return p
}

// anchorOf is the anchor that GitHub gives a heading.
func anchorOf(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		default:
			return -1
		}
	}, shown.ReplaceAllString(title, "$1"))
}
