package tokenizer_test

import (
	"fmt"
	"log"

	"github.com/cage-qat/cage/host/data/tokenizer"
)

func ExampleOpen() {
	for _, spec := range []string{"bytes", "testdata/llama3.tokenizer.json"} {
		tok, err := tokenizer.Open(spec)
		if err != nil {
			log.Fatal(err)
		}
		ids, err := tok.Encode("The model reads.")
		if err != nil {
			log.Fatal(err)
		}
		text, err := tok.Decode(ids)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(tok.Info().Name, len(ids), ids[:3], text)
	}
	// Output:
	// bytes 16 [84 104 101] The model reads.
	// llama3.tokenizer 5 [326 394 378] The model reads.
}
