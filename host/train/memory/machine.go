package memory

import (
	"bufio"
	"bytes"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// Available says how much more memory a process may take.
type Available struct {
	Bytes int64  `json:"bytes"`
	Limit string `json:"limit"` // what limits it, for a message
	// Fraction is the share of a GPU's memory that Bytes are; 0: it is not a share.
	Fraction float64 `json:"fraction,omitempty"`
}

// Of returns how much memory the machine has left, and how much of it the control groups
// of this process (version 1 and 2) allow. It reads the files of /proc and /sys, which
// root contains. It returns false if the system does not tell.
func Of(root fs.FS) (Available, bool) {
	least := Available{Bytes: math.MaxInt64}
	consider := func(bytes int64, limit string, ok bool) {
		if ok && bytes < least.Bytes {
			least = Available{Bytes: max(0, bytes), Limit: limit}
		}
	}
	free, ok := field(root, "proc/meminfo", "MemAvailable:")
	consider(free<<10, "free memory of the machine", ok)
	for _, g := range groups(root) {
		left, ok := g.left(root)
		consider(left, "limit of the control group "+g.dir, ok)
	}
	return least, least.Limit != ""
}

// group is a control group with the names that its files have in its version.
type group struct {
	dir                   string
	limit, usage, reclaim string
}

const (
	unified   = "sys/fs/cgroup"
	versioned = "sys/fs/cgroup/memory"
)

// groups lists the control groups that bound this process: its own and those above. In
// a container the path of its own is often not visible, but its root is the container's.
func groups(root fs.FS) []group {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	var list []group
	for line := range strings.Lines(string(text)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		g := group{limit: "memory.max", usage: "memory.current", reclaim: "inactive_file"}
		base := unified
		if part[1] != "" {
			if !strings.Contains(","+part[1]+",", ",memory,") {
				continue
			}
			g = group{limit: "memory.limit_in_bytes", usage: "memory.usage_in_bytes", reclaim: "total_inactive_file"}
			base = versioned
		}
		for dir := path.Clean("/" + part[2]); ; dir = path.Dir(dir) {
			g.dir = path.Join(base, dir)
			list = append(list, g)
			if dir == "/" {
				break
			}
		}
	}
	return list
}

// left is what the group may still take; what the page cache holds of files it can give
// back. It reports false for a group without a limit.
func (g group) left(root fs.FS) (int64, bool) {
	limit, ok := number(root, path.Join(g.dir, g.limit))
	if !ok || limit > math.MaxInt64/2 { // version 1 has no word for "none"
		return 0, false
	}
	usage, ok := number(root, path.Join(g.dir, g.usage))
	if !ok {
		return limit, true
	}
	cached, _ := field(root, path.Join(g.dir, "memory.stat"), g.reclaim)
	return limit - max(0, usage-cached), true
}

// number reads a file that holds one number.
func number(root fs.FS, name string) (int64, bool) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

// field reads the number that follows a word at the beginning of a line.
func field(root fs.FS, name, word string) (int64, bool) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if parts := strings.Fields(lines.Text()); len(parts) > 1 && parts[0] == word {
			n, err := strconv.ParseInt(parts[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
