package chat_test

import (
	"context"
	"fmt"
	"log"

	"github.com/cage-qat/cage/host/data/chat"
	"github.com/cage-qat/cage/host/data/tokenizer"
)

// Example converts a row to a document, and prints the text that counts in the loss.
func Example() {
	conversation, _, err := chat.ParseRow(
		[]byte(`{"messages": [{"role": "user", "content": "2+3?"}, {"role": "assistant", "content": "5"}]}`))
	if err != nil {
		log.Fatal(err)
	}
	template, err := chat.OpenTemplate("chatml", "", false)
	if err != nil {
		log.Fatal(err)
	}
	encoder, err := chat.NewEncoder(template, tokenizer.Bytes{}, chat.AllTurns)
	if err != nil {
		log.Fatal(err)
	}
	documents, err := encoder.Encode(context.Background(), conversation)
	if err != nil {
		log.Fatal(err)
	}
	document := documents[0]
	var learned []int32
	for i, id := range document.IDs {
		if document.Loss[i] {
			learned = append(learned, id)
		}
	}
	text, err := tokenizer.Bytes{}.Decode(learned)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d tokens, learned: %q\n", len(document.IDs), text)
	// Output: 66 tokens, learned: "5<|im_end|>\n"
}
