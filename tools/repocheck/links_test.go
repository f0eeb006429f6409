package repocheck

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

const repository = "../.."

// TestLinks checks that relative links of all Markdown files lead to a file, and their fragments to
// a heading of it.
func TestLinks(t *testing.T) {
	pages := map[string]page{}
	for _, name := range walk(t, ".md") {
		if p, err := readPage(name); err != nil {
			t.Error(err)
		} else {
			pages[name] = p
		}
	}
	if len(pages) < 20 {
		t.Fatalf("only %d pages were found", len(pages))
	}
	for name, p := range pages {
		for _, link := range p.links {
			if err := check(pages, name, link); err != nil {
				t.Errorf("%s: link to %s: %v", name, link, err)
			}
		}
	}
}

// page is a Markdown file.
type page struct {
	links   []string
	anchors map[string]bool
}

func readPage(name string) (page, error) {
	source, err := os.ReadFile(filepath.Join(repository, name))
	if err != nil {
		return page{}, err
	}
	p := page{anchors: map[string]bool{}}
	markdown := goldmark.New(goldmark.WithExtensions(extension.GFM))
	err = ast.Walk(markdown.Parser().Parse(text.NewReader(source)),
		func(n ast.Node, entering bool) (ast.WalkStatus, error) {
			switch n := n.(type) {
			case *ast.Link:
				if entering {
					p.links = append(p.links, string(n.Destination))
				}
			case *ast.Image:
				if entering {
					p.links = append(p.links, string(n.Destination))
				}
			case *ast.Heading:
				if entering {
					p.addAnchor(plain(n, source))
				}
			}
			return ast.WalkContinue, nil
		})
	return p, err
}

// plain returns the text of a heading without its markup.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if leaf, ok := c.(*ast.Text); ok {
			b.Write(leaf.Value(source))
		} else {
			b.WriteString(plain(c, source))
		}
	}
	return b.String()
}

// addAnchor adds the fragment that GitHub gives a heading.
func (p page) addAnchor(heading string) {
	slug := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
	for i, name := 1, slug; ; i++ {
		if !p.anchors[name] {
			p.anchors[name] = true
			return
		}
		name = fmt.Sprint(slug, "-", i)
	}
}

func check(pages map[string]page, from, link string) error {
	u, err := url.Parse(link)
	if err != nil || u.Scheme != "" || u.Host != "" {
		return err
	}
	to := from
	if u.Path != "" {
		to = filepath.Join(filepath.Dir(from), u.Path)
	}
	if _, err := os.Stat(filepath.Join(repository, to)); err != nil {
		return err
	}
	if p, ok := pages[to]; u.Fragment != "" && ok && !p.anchors[u.Fragment] {
		return fmt.Errorf("no heading has the fragment %q", u.Fragment)
	}
	return nil
}
