// Command docsnapshots writes study results into the given Markdown documents, as tables and as
// numbers within sentences. It computes them from files of kept results (host/study/snapshot), and
// rewrites the text between two comments:
//
//	<!-- kept {study = "effect", table = 1, where = {bits = "4"}} -->
//	… a table …
//	<!-- /kept -->
//
//	CAGE is lower by <!-- kept {study = "effect", table = 1, at = {bits = "4",
//	method = "CAGE"}, show = "difference"} -->−0.0085 [−0.0139, −0.0030]<!-- /kept -->.
//
// A comment on a separate line marks a table or, with show = "differences", only its differences. A
// comment within a line marks a number. With figure = 1 instead of table = 1, a comment on a
// separate line marks a figure of the study, whose file is written to ../pictures, relative to the
// document.
//
// Nothing else in a document is changed. Results are computed as in a study's report. With --check,
// nothing is written, and the command fails if a document differs from the results.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

func main() {
	results := flag.String("results", "docs/results", "`DIR` with files of kept results")
	plugins := flag.String("plugins", "", "`DIR` with plugins: also say which results are stale")
	check := flag.Bool("check", false,
		"write nothing, and fail where a document disagrees with the results")
	flag.Parse()
	if err := run(*results, *plugins, *check, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "docsnapshots:", err)
		os.Exit(1)
	}
}

func run(dir, plugins string, check bool, documents []string) error {
	r := &renderer{Dir: dir, Warn: func(err error) { fmt.Fprintln(os.Stderr, "docsnapshots:", err) }}
	if len(documents) == 0 {
		return errors.New("no documents: want the names of Markdown files")
	}
	if plugins != "" {
		finder, err := plugin.NewFinder() // also builds plugins that are Go packages
		if err != nil {
			return err
		}
		finder.Dirs = []string{plugins}
		r.Survey = func(ctx context.Context, list []*config.Config) []config.Finding {
			return build.Survey(ctx, list, finder, plugin.Options{})
		}
	}
	var errs []error
	for _, path := range documents {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		out, err := r.Render(context.Background(), text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
			continue
		}
		errs = append(errs, put(path, text, out, check))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Pictures)) {
		path := filepath.Join(dir, name)
		now, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		errs = append(errs, put(path, now, r.Pictures[name], check))
	}
	if check && errors.Join(errs...) == nil {
		fmt.Printf("%d documents agree with the results in %s\n", len(documents), dir)
	}
	return errors.Join(errs...)
}

// put writes a file or, if check is set, returns an error if its content would change.
func put(path string, now, content []byte, check bool) error {
	switch {
	case bytes.Equal(now, content):
		return nil
	case check:
		return fmt.Errorf("%s: line %d does not agree with the results: run 'make docs'", path,
			differs(now, content))
	}
	fmt.Println(path)
	return atomicfile.WriteBytes(vfs.At(path), content)
}

// differs returns the number of the first line in which two texts differ.
func differs(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return 1 + bytes.Count(a[:n], []byte("\n"))
}
