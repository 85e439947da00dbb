"""XML-RPC at ``/RPC2``: the procedures of paper 5's service, for programs that speak it already.

(Section 6 of the publication on the configuration of virtual clusters; its figure 4 is what `submit` takes and `status`
gives back.)
"""
