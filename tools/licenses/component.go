package main

import (
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// component is a module, or Go itself.
type component struct {
	name, version string
	dir           string   // its root
	with          []string // directories below dir that concern what is linked, "." for the root
}

// uses adds the directory of a package that is linked, and those above it.
func (c *component) uses(dir string) {
	below, err := filepath.Rel(c.dir, dir)
	if err != nil {
		log.Fatal(err)
	}
	for ; !slices.Contains(c.with, below); below = filepath.Dir(below) {
		c.with = append(c.with, below)
	}
}

// legal are the names of files that are to be handed on.
var legal = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-._].*)?$`)

// chosen are the files of modules that leave a choice, and the licence that is chosen.
var chosen = map[string]struct{ file, license string }{
	"github.com/golang/freetype": {"licenses/ftl.txt", "FTL"},
}

// document is such a file.
type document struct {
	name, text string
	licenses   []string // SPDX names of what it holds
}

// documents reads the component's files.
func (c component) documents() (docs []document, err error) {
	slices.Sort(c.with)
	for _, below := range c.with {
		entries, err := os.ReadDir(filepath.Join(c.dir, below))
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.IsDir() || !legal.MatchString(e.Name()) || filepath.Ext(e.Name()) == ".go" {
				continue
			}
			d, err := c.document(filepath.Join(below, e.Name()))
			if err != nil {
				return nil, err
			}
			docs = append(docs, d)
		}
	}
	if choice, ok := chosen[c.name]; ok {
		d, err := c.document(choice.file)
		d.licenses = []string{choice.license}
		return append(docs, d), err
	}
	return docs, nil
}

// document reads one file and recognizes the licences in it.
func (c component) document(name string) (document, error) {
	text, err := os.ReadFile(filepath.Join(c.dir, name))
	d := document{name: filepath.ToSlash(name), text: strings.ReplaceAll(string(text), "\r\n", "\n")}
	for _, match := range licensecheck.Scan(text).Match {
		if !match.IsURL && !slices.Contains(d.licenses, match.ID) {
			d.licenses = append(d.licenses, match.ID)
		}
	}
	return d, err
}

// licenses are those of the component's documents, each of which must be agreed.
func (c component) licenses(docs []document) (names []string, err error) {
	found := map[string]bool{}
	for _, d := range docs {
		for _, name := range d.licenses {
			if acceptedLicences[name] == "" {
				return nil, fmt.Errorf("%s %s: %s holds the licence %s, which is not among those agreed, %s",
					c.name, c.version, d.name, name, strings.Join(slices.Sorted(maps.Keys(acceptedLicences)), ", "))
			}
			found[name] = true
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s %s: no licence was recognized in %s", c.name, c.version, c.dir)
	}
	return slices.Sorted(maps.Keys(found)), nil
}

const head = `Code of others in cage and its plugins

The released programs are linked with what is listed here, each under its own licence,
whose text follows the list. This file is written by scripts/generate.sh.

`

const rule = "================================================================================"

// write writes the list, then all documents.
func write(w io.Writer, all []component) error {
	texts, used := new(strings.Builder), map[string]bool{}
	fmt.Fprint(w, head)
	for _, c := range all {
		docs, err := c.documents()
		if err != nil {
			return err
		}
		names, err := c.licenses(docs)
		if err != nil {
			return err
		}
		for _, name := range names {
			used[name] = true
		}
		fmt.Fprintf(w, "%s %s: %s\n", c.name, c.version, strings.Join(names, ", "))
		for _, d := range docs {
			fmt.Fprintf(texts, "\n%s\n%s %s, %s\n%[1]s\n\n%[5]s\n", rule, c.name, c.version, d.name, strings.TrimSpace(d.text))
		}
	}
	fmt.Fprint(w, "\nWhat the licences ask of someone who hands the programs on:\n\n")
	for _, name := range slices.Sorted(maps.Keys(used)) {
		fmt.Fprintf(w, "%s: %s\n", name, acceptedLicences[name])
	}
	_, err := io.WriteString(w, texts.String())
	return err
}
