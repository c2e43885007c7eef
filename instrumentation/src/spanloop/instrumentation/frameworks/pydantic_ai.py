def instrument(module):
    module.Agent.instrument_all()
