package jinja_test

import (
	"fmt"
	"log"
	"time"

	"github.com/cage-qat/cage/host/data/chat/jinja"
)

// Example renders a list of messages as text.
func Example() {
	tmpl, err := jinja.Parse("marks",
		"{% for m in messages %}<{{ m.role }}> {{ m.content | trim }}\n{% endfor %}")
	if err != nil {
		log.Fatal(err)
	}
	messages, err := jinja.FromJSON(
		[]byte(`[{"role": "user", "content": " Hello. "}, {"role": "assistant", "content": "Good day!"}]`))
	if err != nil {
		log.Fatal(err)
	}
	got, err := tmpl.Render(map[string]any{"messages": messages}, time.Now(), jinja.Limits{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(got.Text)
	// Output:
	// <user> Hello.
	// <assistant> Good day!
}
