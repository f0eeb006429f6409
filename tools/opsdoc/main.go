// Command opsdoc writes docs/reference/operations.md, which defines the tensor language of plugins
// for authors who use any programming language. The prose is in ops.md.tmpl; names, numbers, types
// and meanings are from the operation table and the limits of package program.
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
