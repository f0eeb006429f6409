package build

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
}

// availableIn returns how much memory the machine has left, and how much of it the control
// groups of this process (version 2) allow. It reads the files of /proc and /sys, which
// root contains. It returns false if the system does not tell.
func availableIn(root fs.FS) (Available, bool) {
	least := Available{Bytes: math.MaxInt64}
	consider := func(bytes int64, limit string, ok bool) {
		if ok && bytes < least.Bytes {
			least = Available{Bytes: max(0, bytes), Limit: limit}
		}
	}
	free, ok := field(root, "proc/meminfo", "MemAvailable:")
	consider(free<<10, "free memory of the machine", ok)
	// The control groups that bound this process: its own and those above. In a container the path
	// of its own is often not visible, but its root is the container's.
	text, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(text)) {
		own, unified := strings.CutPrefix(strings.TrimSpace(line), "0::")
		for dir := path.Clean("/" + own); unified; dir = path.Dir(dir) {
			group := path.Join("sys/fs/cgroup", dir)
			if limit, ok := number(root, path.Join(group, "memory.max")); ok {
				if usage, ok := number(root, path.Join(group, "memory.current")); ok {
					cached, _ := field(root, path.Join(group, "memory.stat"), "inactive_file") // which it can give back
					limit -= max(0, usage-cached)
				}
				consider(limit, "limit of the control group "+group, true)
			}
			if dir == "/" {
				break
			}
		}
	}
	return least, least.Limit != ""
}

func number(root fs.FS, name string) (int64, bool) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

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
