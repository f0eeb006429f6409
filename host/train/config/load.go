package config

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/plaintoml"
)

// Load reads, checks and resolves the configuration at path. Each override is "KEY=VALUE"
// as given to --set: KEY is a full dotted key; VALUE is written as in TOML (strings in
// quotes) and replaces whatever the file says there. A table in an array of tables is
// named by its index, as in "quantizer.overrides[0].bits=3"; the first free index adds
// one.
//
// The error is an *[Error] if the file cannot be read or parsed (it then wraps the
// cause), otherwise [plaintoml.Errors] with every problem found.
func Load(path string, overrides []string) (*Config, error) {
	doc, text, err := plaintoml.ReadFile(path, "a training run")
	if err != nil {
		return nil, err
	}
	return resolve(doc, text, overrides)
}

// Parse is [Load] on text that has already been read. The path is the name used in
// messages; the default of train.out is derived from it, too.
func Parse(path string, text []byte, overrides []string) (*Config, error) {
	doc, err := plaintoml.Parse(path, text)
	if err != nil {
		return nil, err
	}
	return resolve(doc, text, overrides)
}

func resolve(doc *plaintoml.Document, text []byte, overrides []string) (*Config, error) {
	if len(overrides) == 0 && len(bytes.TrimSpace(text)) == 0 {
		return nil, &plaintoml.Error{File: doc.File(), Line: 1, Msg: "the file is empty", Hint: "want a TOML file that describes a training run"}
	}
	if doc.Lookup("study") != nil {
		e := doc.ErrorAt("study", "describes a study, not a training run")
		e.Hint = "want one run, or: cage study run " + doc.File()
		return nil, e
	}
	d := newDecoder(doc)
	for _, text := range overrides {
		d.changed(doc.Override(text))
	}
	return d.result()
}

// Resolve checks and resolves the configuration in a document, with the given settings in place of
// what it says; later settings take precedence over earlier ones. The document itself does not
// change. The model starts from initial, which need not be there yet; nil: from what the document
// says. The error is [plaintoml.Errors].
func Resolve(doc *plaintoml.Document, settings []plaintoml.Setting, initial *Initial) (*Config, error) {
	doc = doc.Clone()
	d := newDecoder(doc)
	if d.given = initial; initial != nil {
		settings = append(slices.Clone(settings), plaintoml.Setting{Key: initKey, Value: initial.Dir})
	}
	for _, s := range settings {
		d.changed(doc.Set(s))
	}
	return d.result()
}

// changed completes a change of the document, which has failed if there is a problem.
func (d *decoder) changed(problem *plaintoml.Error) {
	if problem != nil {
		d.Errs = append(d.Errs, problem)
	}
	d.expandShort()
}

// result returns what the document says with its changes, none of which must have failed.
func (d *decoder) result() (*Config, error) {
	if len(d.Errs) > 0 {
		return nil, d.Errs
	}
	cfg := d.decode()
	if err := d.Err(); err != nil {
		return nil, err
	}
	return cfg, nil
}

func defaultOut(path string) string {
	base := filepath.Base(path)
	name := strings.TrimSuffix(base, filepath.Ext(base))
	if name == "" || name == "." || name == string(filepath.Separator) {
		name = "run"
	}
	return filepath.Join("runs", name)
}

// CheckSteps reports, as an [*plaintoml.Error], a schedule, an average or an override of the
// quantizer that does not fit the number of steps. That number may have become known, from the
// data, only after the configuration was read.
func (c *Config) CheckSteps() error {
	list := slices.Concat(c.Quantizer.steps(c.Train.Steps), c.changing(), c.Train.averageProblems())
	if p, found := c.Schedule.Problem(c.Train.Steps); found {
		list = append(list, p)
	}
	if len(list) > 0 {
		e := c.ErrorAt(list[0].Key, "found %s", list[0].Found)
		e.Hint = list[0].Hint
		return e
	}
	return nil
}

// CheckFiles reports, as [plaintoml.Errors], which of the files that the data keys name are missing
// or not regular files. Load does not look at them, so that a configuration can be read
// and shown anywhere.
func (c *Config) CheckFiles() error {
	var errs plaintoml.Errors
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
		var e *plaintoml.Error
		switch {
		case errors.Is(err, fs.ErrNotExist):
			e = c.ErrorAt(f.key, "no file %q", f.path)
		case err != nil:
			e = c.ErrorAt(f.key, "cannot read %q: %s", f.path, plaintoml.Reason(err))
		case !info.Mode().IsRegular():
			e = c.ErrorAt(f.key, "%q is not a regular file", f.path)
		default:
			continue
		}
		e.Hint, e.Cause = f.hint, err
		errs = append(errs, e)
	}
	if len(errs) == 0 {
		return nil
	}
	errs.Sort()
	return errs
}
