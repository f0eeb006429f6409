package dataset

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// expandPatterns replaces patterns by their matches, sorted by name. A set of shards must be
// complete.
func expandPatterns(paths []string) ([]string, error) {
	if len(paths) == 0 {
		return nil, errors.New("no token file is named")
	}
	var list []string
	for _, path := range paths {
		_, err := os.Lstat(path)
		if !errors.Is(err, fs.ErrNotExist) || !strings.ContainsAny(path, "*?[") {
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
		have, want := map[string]int{}, map[string]int{}
		for _, path := range matches {
			if m := shardNumbers.FindStringSubmatch(path); m != nil {
				set := m[1] + "-*-of-" + m[3] + m[4]
				have[set]++
				want[set], _ = strconv.Atoi(m[3])
			}
		}
		for set, n := range have {
			if n != want[set] {
				return nil, fmt.Errorf("%s: %d of %d files are there", set, n, want[set])
			}
		}
		list = append(list, matches...)
	}
	return list, nil
}

var shardNumbers = regexp.MustCompile(`^(.*)-([0-9]{5,})-of-([0-9]{5,})(\..*)$`)

// Join returns files as one, as if their paths had been given to [Open] together. The
// result shares the open files: closing it closes them.
func Join(files ...*File) (*File, error) {
	var parts []filePart
	for _, f := range files {
		parts = append(parts, f.parts...)
	}
	return newFile(parts)
}
