// Command cmd writes conversations about Go's standard library to a file, one JSON object
// per line: see package docrows.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/tools/docrows"
)

func main() {
	root := flag.String("root", "", "directory of packages, as $(go env GOROOT)/src")
	longest := flag.Int("longest", 240, "characters of an answer")
	out := flag.String("out", "", "file to write")
	flag.Parse()
	if err := run(*root, *longest, *out); err != nil {
		fmt.Fprintln(os.Stderr, "docrows:", err)
		os.Exit(1)
	}
}

func run(root string, longest int, out string) error {
	if root == "" || out == "" {
		return fmt.Errorf("-root and -out are required: the directory of packages and the file to write")
	}
	var text bytes.Buffer
	n, err := docrows.Write(&text, docrows.Options{Root: root, LongestA: longest})
	if err != nil {
		return err
	}
	if err := vfs.At(filepath.Dir(out)).MkdirAll(); err != nil {
		return err
	}
	if err := atomicfile.WriteBytes(vfs.At(out), text.Bytes()); err != nil {
		return err
	}
	fmt.Printf("%d conversations in %s\n", n, out)
	return nil
}
