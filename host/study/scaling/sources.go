package scaling

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// ReadAll reads all sources: files, and directories of runs. Runs that have not ended, or are damaged, are mentioned
// on w.
func ReadAll(w io.Writer, sources []string, labels Labels) (points []Point, damaged int, err error) {
	for _, source := range sources {
		info, err := os.Stat(source)
		if err != nil || !info.IsDir() {
			more, err := ReadFile(source)
			if err != nil {
				return nil, 0, err
			}
			points = append(points, more...)
			continue
		}
		more, left, err := ReadRuns(source, labels)
		if err != nil {
			return nil, 0, err
		}
		for _, l := range left {
			fmt.Fprintf(w, "%s: left out: %s\n", l.Dir, l.Why)
			if l.Damaged {
				damaged++
			}
		}
		points = append(points, more...)
	}
	if len(points) == 0 {
		return nil, 0, fmt.Errorf("no finished runs in %s", strings.Join(sources, ", "))
	}
	return points, damaged, eachOnce(points)
}

// eachOnce fails where a point comes from the same place as another.
func eachOnce(points []Point) error {
	seen := map[string]bool{}
	for _, p := range points {
		source := p.Source
		if abs, err := filepath.Abs(source); err == nil {
			source = abs
		}
		if seen[source] {
			return fmt.Errorf("%s is there twice: name each file and each directory of runs once", p.Source)
		}
		seen[source] = true
	}
	return nil
}
