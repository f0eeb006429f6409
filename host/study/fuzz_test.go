package study

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/config"
	"github.com/cage-qat/cage/host/internal/badfiles"
)

// FuzzParse holds the promises of Parse for any file: no panic, and every problem is an
// error on one line that names the file and a line of it.
func FuzzParse(f *testing.F) {
	f.Add([]byte(small))
	f.Add([]byte(strings.Replace(small, `base = "base.toml"`, `base = {model.kind = "toy", train.steps = 3, schedule.rate = 1}`, 1)))
	for _, c := range badfiles.Read(f, leastBad) {
		f.Add(c.File("study.toml"))
	}
	dir := f.TempDir()
	write(f, filepath.Join(dir, "base.toml"), base)
	path := filepath.Join(dir, "study.toml")
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse(path, text)
		if err == nil {
			for _, c := range s.Cells {
				if c.ID == "" || len(c.Labels) != len(s.Axes) {
					t.Fatalf("cell %+v", c)
				}
			}
			return
		}
		var all config.Errors
		if !errors.As(err, &all) {
			one, ok := errors.AsType[*config.Error](err)
			if !ok {
				t.Fatalf("no *config.Error in %T: %v", err, err)
			}
			all = config.Errors{one}
		}
		for _, e := range all {
			placed := e.File == path && e.Line >= 1 && e.Line <= 1+strings.Count(string(text), "\n")
			if !placed && !strings.HasSuffix(e.File, ".toml") || e.Msg == "" || strings.Contains(e.Error(), "\n") {
				t.Fatalf("%#v: %v", e, e)
			}
		}
	})
}
