package plugin

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/digest"
	"github.com/cage-qat/cage/internal/vfs"
)

// mostEntries limits the files and directories that are searched for modules of a script.
const mostEntries = 20000

// hashOf returns the SHA-256 of an executable. If it is a script whose directory has other source
// files or modules, which it may import, the hash is that of what sha256sum prints for all of them:
// the hash and the relative path of each, sorted by path. Installed packages, the interpreter and
// data files are not covered.
func hashOf(path string) (string, error) {
	sum, isScript, err := hashOfFile(path)
	if err != nil || !isScript {
		return sum, err
	}
	script, err := filepath.EvalSymlinks(path) // Python imports from where the script really is
	if err != nil {
		return "", err
	}
	files, err := modules(filepath.Dir(script), filepath.Base(script), mostEntries)
	if err != nil || len(files) == 1 {
		return sum, err
	}
	var list strings.Builder
	for _, name := range files {
		sum, _, err := hashOfFile(filepath.Join(filepath.Dir(script), name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&list, "%s  %s\n", sum, filepath.ToSlash(name))
	}
	return digest.Of(strings.NewReader(list.String()))
}

func hashOfFile(path string) (sum string, isScript bool, err error) {
	file, err := vfs.At(path).Open()
	if err != nil {
		return "", false, err
	}
	defer file.Close()
	begin := make([]byte, 2)
	n, _ := io.ReadFull(file, begin)
	sum, err = digest.Of(io.MultiReader(bytes.NewReader(begin[:n]), file))
	if err != nil {
		err = fmt.Errorf("read %s: %w", path, err)
	}
	return sum, string(begin) == "#!", err
}

// modules returns the sorted relative paths of a script and of the source files and modules in its
// directory and below, through links, without tests, hidden directories and virtual environments.
func modules(root, script string, most int) ([]string, error) {
	files, seen, entries := []string{script}, map[string]bool{}, 0
	var walk func(dir string) error
	walk = func(dir string) error {
		real, err := filepath.EvalSymlinks(filepath.Join(root, dir))
		virtual := err == nil && isVirtual(real)
		if err != nil || seen[real] || virtual && dir != "." {
			return nil
		}
		seen[real] = true
		list, _ := os.ReadDir(real) // what cannot be read cannot be imported
		for _, e := range list {
			name := filepath.Join(dir, e.Name())
			info, err := os.Stat(filepath.Join(root, name))
			test := strings.HasPrefix(e.Name(), "test_") || strings.HasSuffix(e.Name(), "_test.py")
			if entries++; entries > most {
				return fmt.Errorf("there are more than %d files below %s, too many to search for modules "+
					"that the script's hash covers: put the script into a directory of its own", most, root)
			}
			switch {
			case err != nil || strings.HasPrefix(e.Name(), ".") || test:
			case info.IsDir() && virtual && (e.Name() == "lib" || e.Name() == "lib64") &&
				!isPackage(filepath.Join(root, name)): // the packages that are installed
			case info.IsDir():
				if err := walk(name); err != nil {
					return err
				}
			case slices.Contains([]string{".py", ".so", ".sh"}, filepath.Ext(name)) && name != script,
				filepath.Ext(name) == ".pyc" && filepath.Base(dir) != "__pycache__": // has no source
				files = append(files, name)
			}
		}
		return nil
	}
	err := walk(".")
	slices.Sort(files)
	return files, err
}

// isVirtual reports whether a directory is a virtual environment. A package is none, because a
// script can import it.
func isVirtual(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "pyvenv.cfg"))
	return err == nil && !isPackage(dir)
}

// isPackage reports whether a directory is a package of Python, which hides a module of its name.
func isPackage(dir string) bool {
	files, _ := fs.Glob(os.DirFS(dir), "__init__.*") // the pattern is valid
	return len(files) > 0
}
