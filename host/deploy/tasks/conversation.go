package tasks

import "github.com/cage-qat/cage/host/data/chat"

// Rendered returns a function for [Options].Chat that writes conversations with a
// template, up to where the assistant is to continue.
func Rendered(template *chat.Template) func(turns []Turn) (string, error) {
	return func(turns []Turn) (string, error) {
		var c chat.Conversation
		for _, t := range turns {
			role := chat.User
			if t.Assistant {
				role = chat.Assistant
			}
			c = append(c, chat.NewMessage(role, t.Text))
		}
		r, err := template.Render(c, true)
		return r.Text, err
	}
}
