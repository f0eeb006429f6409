package houserules

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var imports = regexp.MustCompile(`"` + regexp.QuoteMeta(module) + `[a-z/]*"`)

// TestPluginsDoNotKnowTheMethod: quantizers and optimizers do not know that a method
// corrects the training. In their directories its name stands in import paths only.
func TestPluginsDoNotKnowTheMethod(t *testing.T) {
	read := 0
	err := filepath.WalkDir("../../plugins", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		read++
		for i, line := range strings.Split(strings.ToLower(string(text)), "\n") {
			if strings.Contains(imports.ReplaceAllString(line, ""), "cage") {
				t.Errorf("%s:%d speaks of the method", path, i+1)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if read < 20 {
		t.Errorf("only %d files were read", read)
	}
}
