package campaign

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/checkpoint"
	"github.com/cage-qat/cage/host/config"
	"github.com/cage-qat/cage/host/data"
	"github.com/cage-qat/cage/host/rundir"
	"github.com/cage-qat/cage/internal/vfs"
)

// scratch is the directory in the working directory that processes have for temporary files.
const scratch = "tmp"

// walk visits the files and directories below a working directory by their relative names,
// without those in scratch.
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

// files lists the files below a working directory.
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

// copyTree copies a working directory to a new one.
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

// torn lists what is wrong with files right after a kill: all that have their final names
// must be whole. Records may end in the middle of a line.
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
			list = append(list, fmt.Sprintf("%s is not whole after the kill: %v", name, err))
		}
	}
	return list, nil
}

func whole(path string) error {
	switch filepath.Ext(path) {
	case ".safetensors":
		_, err := checkpoint.Load(vfs.At(path))
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
		text, err := os.ReadFile(path)
		for line := range bytes.Lines(text) {
			if bytes.HasSuffix(line, []byte("\n")) && !json.Valid(line) {
				return fmt.Errorf("the line %q", line)
			}
		}
		return err
	}
	return nil
}

func wholeTokens(path string) error {
	f, err := data.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Verify(context.Background())
}

// differences lists where the files of two working directories differ: in their names, or
// in what they hold apart from times.
func differences(want, got string) ([]string, error) {
	a, err := files(want)
	if err != nil {
		return nil, err
	}
	b, err := files(got)
	if err != nil {
		return nil, err
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

// equal compares two files of the same name.
func equal(a, b string) (bool, error) {
	if filepath.Ext(a) == ".log" { // what processes said, before and after the kill
		return true, nil
	}
	x, err := essence(a)
	if err != nil {
		return false, err
	}
	y, err := essence(b)
	return bytes.Equal(x, y), err
}

// essence is the content of a file without what depends on the clock.
func essence(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
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

// tensors are the step of a checkpoint and all its tensors, bit for bit.
func tensors(path string) ([]byte, error) {
	state, err := checkpoint.Load(vfs.At(path))
	if err != nil {
		return nil, err
	}
	out := fmt.Appendf(nil, "step %d\n", state.Step)
	for _, t := range state.Tensors {
		out = fmt.Appendf(out, "%s %v %v\n", t.Name, t.DType, t.Shape)
		out = append(out, t.Data...)
	}
	return out, nil
}

// elsewhere are members of provenance.json that follow from the place and the moment at
// which a run began: its directory, and the identity that it draws.
var elsewhere = []string{"directory", "run"}

// timeless is a JSON value without the members that name times and speeds, nor elsewhere.
func timeless(text []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // all digits count
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if fields, ok := value.(map[string]any); ok {
		for name := range fields {
			if strings.Contains(name, "second") || slices.Contains(elsewhere, name) {
				delete(fields, name)
			}
		}
	}
	return json.Marshal(value)
}
