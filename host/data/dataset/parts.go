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

	"github.com/cage-qat/cage/host/data/tokenizer"
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

// join adds a file to those that are open. All must have the same tokenizer; conversations
// lie in one file.
func (f *File) join(p filePart) error {
	if len(f.parts) == 1 {
		f.header = p.header
		return nil
	}
	first := &f.parts[0]
	if f.Conversations() || p.header.Conversations() {
		return &FormatError{p.path, fmt.Sprintf("cannot be read as one with %s: conversations are read from one file", first.path)}
	}
	a, b := first.header.Tokenizer, p.header.Tokenizer
	if a.SHA256 != b.SHA256 || a.VocabSize != b.VocabSize || a.BOS != b.BOS || a.EOS != b.EOS {
		theirs, own := tokenizer.Distinct(b, a)
		return &FormatError{p.path, fmt.Sprintf("was made with another tokenizer (%s) than %s (%s): "+
			"they cannot be read as one", theirs, first.path, own)}
	}
	f.header.Tokens += p.header.Tokens
	f.header.Documents += p.header.Documents
	return nil
}

// Join returns files as one, as if their paths had been given to [Open] together. The
// result shares the open files: closing it closes them.
func Join(files ...*File) (*File, error) {
	var parts []filePart
	for _, f := range files {
		parts = append(parts, f.parts...)
	}
	return newFile(parts)
}

// joinHashes is the hash of several token files, as [File.Header] says.
func joinHashes(hashes []string) string {
	if len(hashes) == 1 {
		return hashes[0]
	}
	sum := sha256.New()
	for _, h := range hashes {
		fmt.Fprintln(sum, h)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
