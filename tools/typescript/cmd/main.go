// Command typescript draws what a terminal has shown: script -qefc COMMAND /dev/null | typescript --out FILE.svg
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/tools/typescript"
)

func main() {
	out := flag.String("out", "", "`FILE` for the picture (SVG)")
	title := flag.String("title", "", "what the picture shows, in words")
	columns := flag.Int("columns", 80, "least width of the picture, in characters")
	flag.Parse()
	if err := run(*out, *title, *columns); err != nil {
		fmt.Fprintln(os.Stderr, "typescript:", err)
		os.Exit(1)
	}
}

func run(out, title string, columns int) error {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var screen typescript.Screen
	if err := screen.Play(string(text)); err != nil {
		return err
	}
	return atomicfile.WriteBytes(vfs.At(out), []byte(screen.SVG(title, columns)))
}
