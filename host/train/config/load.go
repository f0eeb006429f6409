package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/regular"
)

// maxSize bounds a configuration file, in bytes.
const maxSize = 1 << 20

// Load reads, checks and resolves the configuration at path. Each override is "KEY=VALUE"
// as given to --set: KEY is a full dotted key; VALUE is written as in TOML (strings in
// quotes) and replaces whatever the file says there. A table in an array of tables is
// named by its index, as in "quantizer.overrides[0].bits=3"; the first free index adds
// one.
//
// The error is an *[Error] if the file cannot be read or parsed (it then wraps the
// cause), otherwise [Errors] with every problem found.
func Load(path string, overrides []string) (*Config, error) {
	text, err := readFile(path, "a training run")
	if err != nil {
		return nil, err
	}
	return Parse(path, text, overrides)
}

// Parse is [Load] on text that has already been read. The path is the name used in
// messages; the default of train.out is derived from it, too.
func Parse(path string, text []byte, overrides []string) (*Config, error) {
	if len(overrides) == 0 && len(bytes.TrimSpace(text)) == 0 {
		return nil, &Error{File: path, Line: 1, Msg: "the file is empty", Hint: "want a TOML file that describes a training run"}
	}
	doc, err := parseTOML(path, text)
	if err != nil {
		return nil, err
	}
	if _, study := doc.values["study"]; study {
		e := doc.ErrorAt("study", "describes a study, not a training run")
		e.Hint = "want one run, or: cage study run " + path
		return nil, e
	}
	d := newDecoder(doc)
	if err := d.override(overrides); err != nil {
		return nil, err
	}
	return d.result()
}

// result is decode with its problems in order.
func (d *decoder) result() (*Config, error) {
	cfg := d.decode()
	d.fold()
	if len(d.errs) > 0 {
		d.errs.Sort()
		return nil, d.errs
	}
	return cfg, nil
}

// readFile reads a file that describes something.
func readFile(path, something string) ([]byte, error) {
	fail := func(err error, msg string) error {
		return &Error{File: path, Msg: msg, Hint: "want a TOML file that describes " + something, cause: err}
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fail(err, "no such file")
	case err != nil:
		return nil, fail(err, "cannot read: "+reason(err))
	case info.IsDir():
		return nil, fail(nil, "is a directory")
	}
	f, err := regular.Open(path)
	if err != nil {
		return nil, fail(err, "cannot read: "+reason(err))
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, fail(err, "cannot read: "+reason(err))
	}
	if len(text) > maxSize {
		return nil, fail(nil, fmt.Sprintf("larger than %d bytes", maxSize))
	}
	return text, nil
}

// reason is the cause without the path, which the message names already.
func reason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

// defaultOut is the run directory of a configuration file: runs/NAME.
func defaultOut(path string) string {
	base := filepath.Base(path)
	name := strings.TrimSuffix(base, filepath.Ext(base))
	if name == "" || name == "." || name == string(filepath.Separator) {
		name = "run"
	}
	return filepath.Join("runs", name)
}

// CheckSchedule reports, as an [*Error], a schedule that does not fit the number of steps. That number may have become
// known, from the data, only after the configuration was read.
func (c *Config) CheckSchedule() error {
	if p, found := c.Schedule.Problem(c.Train.Steps); found {
		e := c.ErrorAt(p.Key, "found %s", p.Found)
		e.Hint = p.Hint
		return e
	}
	return nil
}

// CheckFiles reports, as [Errors], which of the files that the data keys name are missing
// or not regular files. Load does not look at them, so that a configuration can be read
// and shown anywhere.
func (c *Config) CheckFiles() error {
	var errs Errors
	type named struct{ key, path, hint string }
	files := []named{
		{"data.validation", c.Data.Validation, "make a token file with: cage data prepare"},
		{"data.tokenizer", c.Data.Tokenizer, "want a tokenizer.json; leave the key out for the tokenizer recorded in the token file"},
	}
	for i, path := range c.Data.Files() {
		files = append(files, named{c.Data.FileKey(i), path, "make a token file with: cage data prepare"})
	}
	for _, f := range files {
		if found, _ := filepath.Glob(f.path); f.path == "" || len(found) > 0 && !slices.Contains(found, f.path) {
			continue // a pattern that matches something
		}
		info, err := os.Stat(f.path)
		var e *Error
		switch {
		case errors.Is(err, fs.ErrNotExist):
			e = c.ErrorAt(f.key, "no file %q", f.path)
		case err != nil:
			e = c.ErrorAt(f.key, "cannot read %q: %s", f.path, reason(err))
		case !info.Mode().IsRegular():
			e = c.ErrorAt(f.key, "%q is not a regular file", f.path)
		default:
			continue
		}
		e.Hint, e.cause = f.hint, err
		errs = append(errs, e)
	}
	if len(errs) == 0 {
		return nil
	}
	errs.Sort()
	return errs
}
