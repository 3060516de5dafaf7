// Package process runs programs under test as processes of the operating
// system: it starts, stops and kills them, and keeps what they say.
package process
