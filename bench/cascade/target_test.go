package main

import "testing"

func TestOnlyThisMachineIsAccepted(t *testing.T) {
	for raw, ok := range map[string]bool{
		"http://127.0.0.1:30000":    true,
		"http://127.9.8.7:1/":       true,
		"http://localhost:30000":    true,
		"http://[::1]:30000":        true,
		"http://10.0.0.1:30000":     false,
		"http://0.0.0.0:30000":      false,
		"http://example.com":        false,
		"http://127.0.0.1.example":  false,
		"http://localhost.example":  false,
		"https://127.0.0.1:30000":   false,
		"127.0.0.1:30000":           false,
		"http://u@10.0.0.1:1":       false,
		"http://127.0.0.1@10.0.0.1": false,
		"":                          false,
	} {
		if _, err := loopback(raw); (err == nil) != ok {
			t.Errorf("%q: accepted %v, want %v", raw, err == nil, ok)
		}
	}
}
