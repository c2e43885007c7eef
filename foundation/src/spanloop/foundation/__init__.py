"""What every role needs: errors, paths, settings, keys, processes, telemetry, plug-ins and the model client."""
