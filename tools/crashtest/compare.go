package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/digest"
	"github.com/cage-qat/cage/internal/jsonlines"
	"github.com/cage-qat/cage/internal/vfs"
)

// scratch is the directory for temporary files of processes, relative to the working directory.
const scratch = "tmp"

// walk visits the files and directories below a working directory by relative name, except those in
// scratch.
func walk(dir string, visit func(name string, isDir bool) error) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if name == scratch {
			return filepath.SkipDir
		}
		return visit(name, entry.IsDir())
	})
}

func files(dir string) ([]string, error) {
	var list []string
	err := walk(dir, func(name string, isDir bool) error {
		if !isDir {
			list = append(list, name)
		}
		return nil
	})
	return list, err
}

// copyTree copies a working directory.
func copyTree(to, from string) error {
	return walk(from, func(name string, isDir bool) error {
		if isDir {
			return os.Mkdir(filepath.Join(to, name), 0o755)
		}
		content, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), content, 0o644)
	})
}

// torn lists the problems of files right after a kill. Every file with its final name must be
// complete, except that records may end in the middle of a line.
func torn(dir string) ([]string, error) {
	names, err := files(dir)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, name := range names {
		if strings.HasPrefix(filepath.Base(name), ".") {
			continue // temporary files and locks
		}
		if err := whole(filepath.Join(dir, name)); err != nil {
			list = append(list, fmt.Sprintf("%s is incomplete after the kill: %v", name, err))
		}
	}
	return list, nil
}

func whole(path string) error {
	switch filepath.Ext(path) {
	case ".safetensors":
		_, err := tensors(path)
		return err
	case ".tokens":
		return wholeTokens(path)
	case ".toml":
		if filepath.Base(path) == rundir.ConfigFile {
			_, err := config.Load(path, nil)
			return err
		}
	case ".json":
		text, err := os.ReadFile(path)
		if err == nil && !json.Valid(text) {
			err = fmt.Errorf("%d bytes, no JSON", len(text))
		}
		return err
	case ".jsonl":
		for _, err := range jsonlines.Read[json.RawMessage](vfs.At(path)) {
			if err != nil && !errors.Is(err, jsonlines.ErrTorn) {
				return err
			}
		}
	}
	return nil
}

func wholeTokens(path string) error {
	f, err := dataset.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Verify(context.Background())
}

// differences lists the files that differ between two working directories, in name or in content
// except times. If a study is killed, its training runs stop and save their current step.
// toldToStop says that this happened: then older checkpoints can be of other steps, and only their
// number is compared.
func differences(want, got string, toldToStop bool) ([]string, error) {
	a, err := files(want)
	if err != nil {
		return nil, err
	}
	b, err := files(got)
	if err != nil {
		return nil, err
	}
	if toldToStop {
		a, b = withoutPairs(a, b, olderCheckpoint)
	}
	var list []string
	for _, name := range a {
		if !slices.Contains(b, name) {
			list = append(list, name+" is missing")
			continue
		}
		same, err := equal(filepath.Join(want, name), filepath.Join(got, name))
		if err != nil {
			return nil, err
		}
		if !same {
			list = append(list, name+" differs from that of an undisturbed run")
		}
	}
	for _, name := range b {
		if !slices.Contains(a, name) {
			list = append(list, name+" is left over")
		}
	}
	return list, nil
}

// withoutPairs removes pairs of names in the same directory of which each is in only one of the two
// sorted lists, if both are replaceable.
func withoutPairs(
	a, b []string, replaceable func(name string, list []string) bool,
) (x, y []string) {
	x, y = slices.Clone(a), slices.Clone(b)
	for _, missing := range a {
		if slices.Contains(b, missing) || !replaceable(missing, a) {
			continue
		}
		i := slices.IndexFunc(y, func(name string) bool {
			beside := filepath.Dir(name) == filepath.Dir(missing)
			return !slices.Contains(a, name) && beside && replaceable(name, b)
		})
		if i >= 0 {
			x = slices.DeleteFunc(x, func(name string) bool { return name == missing })
			y = slices.Delete(y, i, i+1)
		}
	}
	return x, y
}

// olderCheckpoint reports whether name is a checkpoint and the list has a newer one of the same
// run.
func olderCheckpoint(name string, list []string) bool {
	return filepath.Ext(name) == ".safetensors" && slices.ContainsFunc(list, func(other string) bool {
		return filepath.Dir(other) == filepath.Dir(name) && filepath.Ext(other) == ".safetensors" &&
			other > name
	})
}

// equal reports whether two files of the same name have the same essence.
func equal(a, b string) (bool, error) {
	claim := filepath.Base(filepath.Dir(a)) == ".claims" // which process worked on a cell last
	// Output of processes differs, because it covers the time before and after the kill.
	if claim || filepath.Ext(a) == ".log" {
		return true, nil
	}
	x, err := essence(a)
	if err != nil {
		return false, err
	}
	y, err := essence(b)
	return bytes.Equal(x, y), err
}

// essence returns the content of a file, except values that depend on the clock.
func essence(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if filepath.Base(path) == "checksums.json" {
		return agreements(filepath.Dir(path), text)
	}
	switch filepath.Ext(path) {
	case ".safetensors":
		return tensors(path)
	case ".json":
		return timeless(text)
	case ".jsonl":
		var out []byte
		for line := range bytes.Lines(text) {
			fields, err := timeless(line)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			out = append(append(out, fields...), '\n')
		}
		return out, nil
	}
	return text, nil
}

// agreements says of each checksum of a study's cell whether the file is as it tells; the checksums
// themselves are of files with times.
func agreements(dir string, text []byte) (out []byte, err error) {
	var sums map[string]string
	if err := json.Unmarshal(text, &sums); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		found := ""
		if data, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			if found, err = digest.Of(bytes.NewReader(data)); err != nil {
				return nil, err
			}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		out = fmt.Appendf(out, "%s agrees: %t\n", name, found == sums[name])
	}
	return out, nil
}

// tensors returns the step of a checkpoint, its tensors bit for bit, and its metadata except times
// and values that differ between runs.
func tensors(path string) (out []byte, err error) {
	f, err := checkpoint.Open(vfs.At(path))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out = fmt.Appendf(nil, "step %d\n", f.Step)
	for _, key := range slices.Sorted(maps.Keys(f.Meta)) {
		if slices.Contains(elsewhere, key) {
			continue
		}
		value, err := timeless([]byte(f.Meta[key]))
		if err != nil {
			return nil, fmt.Errorf("%s: metadata %q: %w", path, key, err)
		}
		out = fmt.Appendf(out, "%s %s\n", key, value)
	}
	for _, t := range f.Tensors {
		data, err := t.Bytes()
		if err != nil {
			return nil, err
		}
		out = fmt.Appendf(out, "%s %v %v\n", t.Name, t.DType, t.Shape)
		out = append(out, data...)
	}
	return out, nil
}

// elsewhere lists the members of provenance.json that differ between runs: the directory and the
// random run ID.
var elsewhere = []string{"directory", "run"}

// timeless returns a JSON value without times, speeds and the members listed in elsewhere.
func timeless(text []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // all digits count
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if fields, ok := value.(map[string]any); ok {
		for name := range fields {
			if metrics.Timed(name) || slices.Contains(elsewhere, name) {
				delete(fields, name)
			}
		}
	}
	return json.Marshal(value)
}
