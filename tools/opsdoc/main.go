// Command opsdoc writes docs/reference/operations.md, the definition of the plugins' tensor
// language for authors in any language, from the operation table and the limits
// of package program. The prose is in ops.md.tmpl; names, numbers, types and meanings come from the
// code.
package main

import (
	"flag"
	"log"
	"os"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("opsdoc: ")
	out := flag.String("out", "", "file to write (required)")
	flag.Parse()
	if *out == "" || flag.NArg() > 0 {
		flag.Usage()
		log.Fatal("name the file to write with -out")
	}
	text, err := page()
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(*out, text, 0o644); err != nil {
		log.Fatal(err)
	}
}
