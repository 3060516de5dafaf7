// Package process runs programs under test as processes of the operating
// system: it starts, stops and kills them, keeps their logs, finds addresses for
// them and asks for their health.
package process
