package dataset

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// expandPatterns puts what patterns match, by name, in their place. Of shards that
// belong together none may be missing.
func expandPatterns(paths []string) ([]string, error) {
	if len(paths) == 0 {
		return nil, errors.New("no token file is named")
	}
	var list []string
	for _, path := range paths {
		if _, err := os.Lstat(path); err == nil || !errors.Is(err, fs.ErrNotExist) || !strings.ContainsAny(path, "*?[") {
			list = append(list, path)
			continue
		}
		matches, err := filepath.Glob(path)
		if err != nil {
			return nil, fmt.Errorf("pattern %q: %w", path, err)
		}
		if len(matches) == 0 {
			return nil, &fs.PathError{Op: "find", Path: path, Err: fs.ErrNotExist}
		}
		if err := complete(matches); err != nil {
			return nil, err
		}
		list = append(list, matches...)
	}
	return list, nil
}

var shardNumbers = regexp.MustCompile(`^(.*)-([0-9]{5,})-of-([0-9]{5,})(\..*)$`)

// complete makes sure that a pattern matches all of the shards that it matches one of.
func complete(paths []string) error {
	have, want := map[string]int{}, map[string]int{}
	for _, path := range paths {
		m := shardNumbers.FindStringSubmatch(path)
		if m == nil {
			continue
		}
		set := m[1] + "-*-of-" + m[3] + m[4]
		have[set]++
		want[set], _ = strconv.Atoi(m[3])
	}
	for set, n := range have {
		if n != want[set] {
			return fmt.Errorf("%s: %d of %d files are there", set, n, want[set])
		}
	}
	return nil
}

// join adds a file to those that are open. All must have the same tokenizer.
func (f *File) join(p filePart) error {
	if len(f.parts) == 1 {
		f.header = p.header
		return nil
	}
	first := &f.parts[0]
	if p.header.Tokenizer.SHA256 != first.header.Tokenizer.SHA256 || p.header.Tokenizer.VocabSize != first.header.Tokenizer.VocabSize ||
		p.header.Tokenizer.BOS != first.header.Tokenizer.BOS || p.header.Tokenizer.EOS != first.header.Tokenizer.EOS {
		return &FormatError{p.path, fmt.Sprintf("was made with another tokenizer (%s) than %s (%s): they cannot be read as one",
			p.header.Tokenizer.Name, first.path, first.header.Tokenizer.Name)}
	}
	f.header.Tokens += p.header.Tokens
	f.header.Documents += p.header.Documents
	return nil
}

// Join returns files as one, as if their paths had been given to [Open] together. The
// result shares the open files: closing it closes them.
func Join(files ...*File) (*File, error) {
	joined := &File{}
	joined.buffers.New = func() any { return new([]byte) }
	for _, f := range files {
		for _, part := range f.parts {
			part.begin = joined.header.Tokens
			joined.parts = append(joined.parts, part)
			if err := joined.join(part); err != nil {
				return nil, err
			}
		}
	}
	joined.setHash()
	return joined, nil
}

// setHash makes the hash of all files.
func (f *File) setHash() {
	var hashes []string
	for _, p := range f.parts {
		hashes = append(hashes, p.header.SHA256)
	}
	f.header.SHA256 = JoinHashes(hashes)
}

// JoinHashes is the hash of several token files, as [File.Header] says.
func JoinHashes(hashes []string) string {
	if len(hashes) == 1 {
		return hashes[0]
	}
	sum := sha256.New()
	for _, h := range hashes {
		fmt.Fprintln(sum, h)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
