"""The only place that knows everyone: configuration, the loop, the record."""
